"""Run the notebooks and keep their outputs: ``python -m notebooks.execute [NAME...]``.

What differs from run to run is left out: timings, versions, and what libraries write to standard error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).resolve().parent


def notebooks() -> list[Path]:
    """All of them, in order."""
    return sorted(HERE.glob("*.ipynb"))


def executed(path: Path) -> NotebookNode:
    """The notebook with the outputs of a fresh run; CellExecutionError where a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=300, record_timing=False, resources={"metadata": {"path": str(HERE)}})
    return cleaned(client.execute())


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """Without what says when, where and with what it ran."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                output.pop("execution_count", None)
                if output.output_type == "execute_result":
                    output.output_type = "display_data"
    return notebook


def written(notebook: NotebookNode) -> str:
    """The text of its file."""
    return str(nbformat.writes(notebook)) + "\n"


def main(names: list[str]) -> None:
    """Run those whose file names begin with one of ``names``, or all."""
    for path in notebooks():
        if not names or path.name.startswith(tuple(names)):
            text = written(executed(path))
            path.write_text(text, encoding="utf-8")
            print(f"{path.name}: {len(text) / 1000:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
