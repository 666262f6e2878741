"""The one thing that pyproject.toml cannot say: the folder `conf` is installed as a part of the package `jobs`."""

from setuptools import find_namespace_packages, setup

OURS = [
    "broker_lite*",
    "connectors*",
    "exactly_once*",
    "jobs*",
    "offset_store*",
    "pyspark_delta_once*",
    "pyspark_kafka_once*",
]

setup(packages=[*find_namespace_packages(include=OURS), "jobs.conf"], package_dir={"jobs.conf": "conf"})
