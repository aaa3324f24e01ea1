"""Which profile a running controller decides by (R-SIM-7)."""

from __future__ import annotations

from dataclasses import replace

from jbod_model.profiles import Profile


def deciding(profile: Profile) -> Profile:
    """The profile with the rule by which a controller, not a client, takes a directory for offline.

    The page of the KIP has two. "Metadata caching" takes a replica in an unlisted directory for online while its
    broker lists only one; "Handling replica assignments" has the controller take it for offline if the directory is
    not one of the broker's online ones. The first is for what clients are shown. A controller that elected by it
    would leave leaders on a dead disk as soon as one disk is left: ``jbod explore --literal`` finds how.
    """
    return replace(profile, offline_rule="kafka")
