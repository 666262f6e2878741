"""A store with S3's interface on this machine, and a proxy in front of it that makes requests fail."""
