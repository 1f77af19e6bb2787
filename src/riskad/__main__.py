"""`python -m riskad`."""

from riskad.cli.main import main

if __name__ == "__main__":
    main()
