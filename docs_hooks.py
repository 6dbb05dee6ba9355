"""For mkdocs: plots stay beside the records they are drawn from, and the site shows them."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

PLOTS = "benchmarks/results"


def on_files(files: Any, config: Any) -> Any:
    """The plots as files of the site."""
    for plot in sorted(Path(config.config_file_path).with_name("benchmarks").glob("results/*.svg")):
        files.append(File.generated(config, f"{PLOTS}/{plot.name}", abs_src_path=str(plot)))
    return files


def on_page_markdown(text: str, **_: Any) -> str:
    """Links from docs/ to the plots, as the site has them."""
    return text.replace(f"](../{PLOTS}/", f"]({PLOTS}/")
