"""serve: HTTP requests come in; hits of a live index go out, through a bounded queue.

A request goes through `app` (what may be asked) to `desk` (who waits, who is turned away), whose workers ask the index
that `shelf` holds at that moment.
"""

from pixnar.serve.app import make_app
from pixnar.serve.limits import Limits
from pixnar.serve.live_index import Shelf
from pixnar.serve.queue import Desk
from pixnar.serve.run import Settings, serve
from pixnar.serve.server import Server, make_server

__all__ = ["Desk", "Limits", "Server", "Settings", "Shelf", "make_app", "make_server", "serve"]
