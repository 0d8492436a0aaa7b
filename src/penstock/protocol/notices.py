"""Topics of the notices that the broker sends on its own."""

from __future__ import annotations

from typing import Final

INITIALIZE: Final = "system.initialize"
"""The first message on every new connection."""
HEARTBEAT: Final = "system.heartbeat"
LOG: Final = "system.log"
CLOSING: Final = "system.closing"
ACTIVE: Final = "system.subscription.active"
"""The notice that this consumer is the active one of its subscription from now on."""
ENDED: Final = "system.subscription.ended"
"""The notice that this consumer is no longer a member of its subscription."""
GAP: Final = "system.subscription.gap"
"""The notice of offsets that this consumer will not get, because their messages are damaged or retention dropped
them."""
SOUGHT: Final = "system.subscription.sought"
"""The notice that a seek has set the position: messages sent before the notice are obsolete."""
FENCED: Final = "system.producer.fenced"
"""The notice that another connection has this producer now."""
