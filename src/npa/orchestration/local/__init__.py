"""The embedded engine: jobs are detached processes of this machine under a small shim."""
