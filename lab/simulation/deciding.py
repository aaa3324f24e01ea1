"""The profile by which a running controller decides (R-SIM-7)."""

from __future__ import annotations

from dataclasses import replace

from jbod_model.profiles import Profile


def deciding(profile: Profile) -> Profile:
    """The profile with the rule by which a controller, not a client, considers a directory offline.

    The KIP has two rules. By "Metadata caching" a replica in an unlisted directory is online if its broker lists only
    one directory. By "Handling replica assignments" the controller considers it offline if the directory is not among
    the broker's online ones. The first rule is for clients. A controller that used it in elections would leave leaders
    on a dead disk once only one disk is left: ``python -m lab explore --literal`` shows how.
    """
    return replace(profile, offline_rule="kafka")
