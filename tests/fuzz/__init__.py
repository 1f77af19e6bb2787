"""A fuzzer of the command line and of model files: `python -m tests.fuzz --help`."""
