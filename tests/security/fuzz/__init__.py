"""A fuzzer over the entry points that strangers may try: ``make fuzz``, and a short run of it among the tests."""
