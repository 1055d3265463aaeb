"""The ``sojourn`` command: one small module for each subcommand, each importing what it runs only when it runs."""
