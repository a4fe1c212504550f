"""``python -m oml``."""

from oml.cli import main

main()
