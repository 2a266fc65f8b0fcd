"""SkyPilot as a cloud provider: the port, its adapter, node set-up."""
