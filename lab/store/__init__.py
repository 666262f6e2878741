"""A store with S3's interface on this machine, and a proxy before it that makes requests fail."""
