"""Questions answered from a lake without a JVM: ``Lake.open`` and one function per question.

Questions that need the controller's rules (risk, whatif, removal) are not imported here, as they load more slowly.
"""

from pipelines.ask.directories import directories
from pipelines.ask.history import history
from pipelines.ask.image import image
from pipelines.ask.incidents import incidents
from pipelines.ask.offline import offline
from pipelines.ask.status import status
from pipelines.lake.reader import Lake

__all__ = ["Lake", "directories", "history", "image", "incidents", "offline", "status"]
