"""docs/tutorial.ipynb, run from its first cell to its last in a kernel of Jupyter."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "tutorial.ipynb"
TIMEOUT_S = 200


def notebook() -> NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def shown(cell: NotebookNode, kind: str) -> str:
    """Return what a cell has as its result."""
    (result,) = [each for each in cell.outputs if each.output_type == "execute_result"]
    return str(result.data[kind])


def test_it_is_kept_without_outputs() -> None:
    nbformat.validate(notebook())
    code = [cell for cell in notebook().cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)


@pytest.mark.lab
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_it_runs_and_proves_what_it_says(tmp_path: Path) -> None:
    book = notebook()
    NotebookClient(book, timeout=TIMEOUT_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
    by_end = {cell.source.splitlines()[-1]: cell for cell in book.cells if cell.cell_type == "code"}
    rows_and_batches = by_end["DeltaTable(str(table)).to_pyarrow_table().num_rows, done"]
    assert shown(rows_and_batches, "text/plain") == "(800, ['0'])"
    queries = shown(by_end["lag"], "text/html")
    assert "<td" in queries
    assert ">ended<" in queries
    assert ">200<" in queries
    assert "orders" in shown(by_end["lag.queries()[0]"], "text/html")
    assert "verdict=proven" in shown(by_end["proof"], "text/html")
    assert "AUDIT commits=4 partitions=1 gaps=0 overlaps=0 warnings=0" in shown(by_end["proof"], "text/html")
    assert shown(by_end["proof.proven"], "text/plain") == "True"
    stored = shown(by_end['open_store(f"delta:{table}", "orders")'], "text/html")
    assert all(f">{end}<" in stored for end in ("400", "800", "1,000"))
    assert list(tmp_path.iterdir()) == []
