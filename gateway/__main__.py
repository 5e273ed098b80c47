"""`python -m gateway` is `mqgate`."""

from gateway.cli import main

main()
