"""`python -m gptlite` and `torchrun -m gptlite`."""

from gptlite.cli.app import main

main()
