"""serve: HTTP requests come in; hits of a live index go out, through a bounded queue.

A request passes `middleware` (size, time, keys) and `app` (routes and checks) to `queue`, which admits or refuses it.
The queue's workers search whichever index `live_index` holds at that moment.
"""

from pixnar.serve.app import make_app
from pixnar.serve.live_index import LiveIndex
from pixnar.serve.queue import Limits
from pixnar.serve.run import Settings, serve
from pixnar.serve.server import make_server

__all__ = ["Limits", "LiveIndex", "Settings", "make_app", "make_server", "serve"]
