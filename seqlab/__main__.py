"""`python -m seqlab` is `seqlab`."""

from seqlab.cli import main

main()
