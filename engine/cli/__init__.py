"""The command line, `laneway`: runs plans, resumes runs, and shows what is in a journal.

    app         the commands, and what becomes of errors; options that several take in options
    commands/   those with much to say for themselves, a file each
    because     the words of `why` ◀─ stands (how a call stands)
    demo*       an agent repairs a project, from recorded answers of a model
    plans       a plan from a file: foreseen, run, and taken up again
    policy_*    policies, examples and calls that `policy` is given
    resuming    the function that a run names, found and called
    journals    which file is meant, and what is read from it
    shown       a run as data (`--json`) ─▶ tree; its times from moments
    lanes*      who holds what in running engines ◀─ standing ◀─ leased (the file, read only)
    progress    what happens while it happens ◀─ stores (around the journal's Protocol)

Exit codes: 0, all is well; 1, calls of the run did not succeed, or it has an open turn, or calls of
a plan would not run; 2, what was given cannot be used, and nothing was begun; 130, interrupted.
"""

import sys

EXTRA = frozenset({"typer", "rich"})


def main() -> None:
    """Run the command line of this process.

    Raises:
        SystemExit: always, with the exit code.
    """
    try:
        from laneway.engine.cli.app import app  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA:
            raise
        print(
            f"laneway: the command line needs the package {package}; "
            "install it with: pip install 'laneway[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    app(prog_name="laneway")
