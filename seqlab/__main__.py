"""`python -m seqlab` is `seqlab`."""

INTERRUPTED = 130  # exit code


def main() -> None:
    """Run the command that was typed; Ctrl-C while it loads ends it without a traceback."""
    try:
        from seqlab.cli import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
