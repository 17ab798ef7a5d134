"""What a run is aimed at: configuration, credentials, secrets, host. Built once, passed down."""
