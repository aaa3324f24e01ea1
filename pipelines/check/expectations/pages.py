"""Views of Great Expectations' Data Docs that load nothing: style and script are in each page.

The project's configuration names these classes (``site_section_builders``, ``site_index_builder``). Their templates are
in ``templates`` and win over those of Great Expectations with the same name.
"""

from __future__ import annotations

from typing import Any

from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView
from jinja2 import ChoiceLoader, Environment, PackageLoader

_OURS = PackageLoader("pipelines.check.expectations", "templates")


def _prefer_ours(env: Environment) -> None:
    env.loader = ChoiceLoader([_OURS, *filter(None, [env.loader])])


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
