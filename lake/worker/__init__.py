"""SQL that others wrote, run in a process that can be killed: time and memory limits that hold."""
