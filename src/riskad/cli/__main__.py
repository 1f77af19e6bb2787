"""`python -m riskad.cli`."""

from riskad.cli.main import main

main()
