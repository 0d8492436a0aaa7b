"""What the broker says without being asked: the topics of its own messages."""

from __future__ import annotations

from typing import Final

INITIALIZE: Final = "system.initialize"
"""First of all, to every new connection."""
HEARTBEAT: Final = "system.heartbeat"
LOG: Final = "system.log"
CLOSING: Final = "system.closing"
ACTIVE: Final = "system.subscription.active"
"""This consumer is the one that is served from now on."""
ENDED: Final = "system.subscription.ended"
"""This consumer is none any more."""
GAP: Final = "system.subscription.gap"
"""Messages that this consumer will not get: they are damaged, or retention dropped them."""
SOUGHT: Final = "system.subscription.sought"
"""What came before is of no interest any more."""
FENCED: Final = "system.producer.fenced"
"""Another connection has this producer now."""
