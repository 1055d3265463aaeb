"""A fuzzer over the doors that strangers may knock at: ``make fuzz``, and a short run of it among the tests."""
