"""The command line: runs, comparisons and audits, what budgets are worth, owners on machines of their own."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Any, NoReturn

import click

from secure_fedgraph import __version__
from secure_fedgraph.arguments import nearest, training_setting
from secure_fedgraph.backends.memory import keep_freed_memory
from secure_fedgraph.cli.commands.bench import bench
from secure_fedgraph.cli.commands.budgets import budget, plan
from secure_fedgraph.cli.commands.disputes import dispute
from secure_fedgraph.cli.commands.federation import federation
from secure_fedgraph.cli.commands.results import doctor, export, list_names, predict, report, schema
from secure_fedgraph.cli.commands.runs import audit, compare, demo, reproduce, resume, run
from secure_fedgraph.cli.commands.server import server
from secure_fedgraph.cli.commands.silo import silo
from secure_fedgraph.cli.screen import leave_the_pipe, visible
from secure_fedgraph.core.errors import SecureFedGraphError, Terminated
from secure_fedgraph.registry import PluginWarning


class _Errors(click.Group):
    """Turns this package's errors into one line and its exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. 'list' says which plugins are left out; whose name is used gets the reason."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PluginWarning)
            return super().invoke(ctx)

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        given = kwargs.get("args") or (args[0] if args else None) or sys.argv[1:]
        debug = "--debug" in given
        keep_freed_memory()
        try:
            status = super().main(*args, **{**kwargs, "standalone_mode": False})
            sys.exit(status if isinstance(status, int) else 0)
        except SecureFedGraphError as error:
            _fail(error, str(error), error.exit_status, debug)
        except click.NoSuchOption as error:
            _fail(error, _no_such_option(error), 2, debug)
        except click.ClickException as error:
            _fail(error, " ".join(error.format_message().split()), 2, debug)  # choices stand in lines
        except (click.Abort, KeyboardInterrupt) as interrupt:
            reason = interrupt.__cause__ or interrupt
            status = reason.exit_status if isinstance(reason, Terminated) else 130
            _fail(None, str(reason) or "interrupted", status, False)
        except BrokenPipeError:  # whoever reads, as head does, has enough
            leave_the_pipe()
            sys.exit(0)
        except Exception as error:
            _fail(error, f"{type(error).__name__}: {error} (run with --debug for the traceback)", 1, debug)


def _no_such_option(error: click.NoSuchOption) -> str:
    """The option that was meant, also where another tool calls it otherwise."""
    command = error.ctx.command if error.ctx is not None else None
    known = [name[2:] for one in command.params for name in one.opts if name[:2] == "--"] if command else []
    near = nearest(error.option_name.lstrip("-"), known)
    if "set" in known and (setting := training_setting(error.option_name)):
        near = f"set {setting}=VALUE"
    return f"No such option {error.option_name}" + (f": did you mean --{near}?" if near else "; -h lists all")


def _fail(error: BaseException | None, message: str, status: int, debug: bool) -> NoReturn:
    if debug and error is not None:
        traceback.print_exception(error)
    click.echo(f"secure-fedgraph: {visible(message)}", err=True)
    sys.exit(status)


@click.group(cls=_Errors, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="secure-fedgraph")
def main() -> None:
    """Train graph neural networks across data silos, under protection, and measure what leaks.

    \b
    Exit status: 0 done, 2 bad arguments or configuration, 3 refused for privacy,
    4 an audit found a broken claim, 1 anything else.
    """


COMMANDS = (
    *(run, resume, compare, audit, demo, budget, plan, reproduce, bench),
    *(list_names, report, export, predict, schema, doctor),
    *(federation, silo, server, dispute),
)
for command in COMMANDS:
    main.add_command(command)


if __name__ == "__main__":
    main()
