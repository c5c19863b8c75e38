"""`python -m drumbeat.cli` is `drumbeat`."""

from drumbeat.cli import main

main()
