"""The command line: parse, call one function of `riskad.app`, print."""
