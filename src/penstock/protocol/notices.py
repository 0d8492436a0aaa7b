"""Topics of the notices that the broker sends on its own."""

from __future__ import annotations

from typing import Final

INITIALIZE: Final = "system.initialize"
"""The first message on every new connection."""
HEARTBEAT: Final = "system.heartbeat"
LOG: Final = "system.log"
CLOSING: Final = "system.closing"
ACTIVE: Final = "system.subscription.active"
"""This consumer is the active one from now on."""
ENDED: Final = "system.subscription.ended"
"""This consumer is no longer a member of its subscription."""
GAP: Final = "system.subscription.gap"
"""Messages that this consumer will not get, because they are damaged or retention dropped them."""
SOUGHT: Final = "system.subscription.sought"
"""A seek set the position: messages sent before it are obsolete."""
FENCED: Final = "system.producer.fenced"
"""Another connection has this producer now."""
