"""`python -m revup`, the same as the command `revup`."""

from revup.cli import main

main()
