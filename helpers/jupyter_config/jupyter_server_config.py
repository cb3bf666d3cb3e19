"""Settings of the server; Jupyter runs this file and gives it get_config."""

import zmq
from jupyter_client.manager import KernelManager

config = get_config()  # noqa: F821
config.ServerApp.ip = "127.0.0.1"  # loopback only
# A kernel talks to the server through ports, and other users of the same computer could read what it prints.
# Jupyter can encrypt that from jupyter_client 8.9 and ipykernel 7.3 on.
if hasattr(KernelManager, "transport_encryption") and zmq.has("curve"):
    config.KernelManager.transport_encryption = "auto"
config.ServerApp.contents_manager_class = "helpers.contents.Contents"
