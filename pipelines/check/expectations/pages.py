"""Views of Great Expectations' Data Docs that load nothing: style and script are in each page.

The project's configuration names these classes (``site_section_builders``, ``site_index_builder``). Their templates are
in ``templates`` and win over those of Great Expectations with the same name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView
from jinja2 import ChoiceLoader, Environment, PackageLoader

_OURS = PackageLoader("pipelines.check.expectations", "templates")


def _prefer_ours(env: Environment) -> None:
    env.loader = ChoiceLoader([_OURS, *filter(None, [env.loader])])
    env.filters["readable"] = readable


def readable(sections: Sequence[Any]) -> list[Any]:
    """The sections of a page, those with failures first; the first section, an overview, stays where it is.

    Rows of a table of results are ordered in the same way. A column without rows has no percentage, and the data of a
    suite has its name.
    """
    said = [_readable(section) for section in sections]
    return said[:1] + sorted(said[1:], key=_is_sound)


def _readable(part: Any) -> Any:
    if isinstance(part, dict):
        said = {name: _readable(value) for name, value in part.items()}
        if said.get("data_asset_name") in ("None", None) and "expectation_suite_name" in said:
            said["data_asset_name"] = said["expectation_suite_name"]
        return said
    if isinstance(part, list):
        listed = [_readable(one) for one in part]
        is_results = listed and all(isinstance(one, dict) and "validation_success" in one for one in listed)
        return sorted(listed, key=_is_sound) if is_results else listed
    return "no rows" if part == "NaN% null" else part


def _is_sound(part: Any) -> bool:
    """Whether nothing failed: Great Expectations shows each failure in this style."""
    return "text-danger" not in json.dumps(part, default=str)


class PageView(DefaultJinjaPageView):
    """The view of a suite and of a result."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        _prefer_ours(self.env)


class IndexPageView(DefaultJinjaIndexPageView):
    """The view of the first page."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        _prefer_ours(self.env)


def _view(name: str) -> dict[str, str]:
    return {"module_name": __name__, "class_name": name}


def _section(source: str, renderer: str) -> dict[str, Any]:
    return {
        "class_name": "DefaultSiteSectionBuilder",
        "source_store_name": source,
        "renderer": {"class_name": renderer},
        "view": _view(PageView.__name__),
    }


SITE: dict[str, Any] = {
    "show_how_to_buttons": False,
    "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": _view(IndexPageView.__name__)},
    "site_section_builders": {
        "expectations": _section("expectations_store", "ExpectationSuitePageRenderer"),
        "validations": _section("validation_results_store", "ValidationResultsPageRenderer"),
    },
}
"""The part of a site's configuration that chooses these views."""
