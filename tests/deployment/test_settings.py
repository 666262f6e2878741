"""Every setting of Spark that deploy/ and docs/deployment name is one that it knows: others it ignores silently."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pyspark

PROJECT = Path(__file__).resolve().parents[2]
JARS = Path(pyspark.__file__).with_name("jars")
MODULES = ("core", "kubernetes", "yarn", "network-common", "common-utils", "sql-api")
PREFIXES = ("spark.executorEnv.", "spark.yarn.appMasterEnv.", "spark.kubernetes.executor.secretKeyRef.")
"""What comes after them is the user's."""
COMPOSED = {"spark.kubernetes.authenticate.driver.serviceAccountName": "spark.kubernetes.authenticate.driver"}
"""Settings that Spark puts together; and what is to be found of each."""
SETTING = re.compile(r"\bspark\.[a-zA-Z]+(?:\.[a-zA-Z]+)+\b(?!/)")
NO_SETTINGS = (
    "spark.deploy.master.Master",
    "spark.deploy.worker.Worker",
    "spark.deploy.k8s.Constants",
    "spark.scheduler.",
    "spark.readStream.",
)


def named() -> set[str]:
    files = [*(PROJECT / "deploy").rglob("*"), *(PROJECT / "docs" / "deployment").glob("*.md")]
    texts = [path.read_text() for path in files if path.is_file() and path.suffix != ".whl"]
    found = {name for text in texts for name in SETTING.findall(text)}
    return {
        name for name in found if not name.startswith((*PREFIXES, *NO_SETTINGS)) and not name.startswith("spark.apache")
    }


def test_spark_knows_every_setting() -> None:
    wanted = named()
    assert {"spark.driver.host", "spark.yarn.jars", "spark.kubernetes.driver.pod.name"} <= wanted
    missing = {COMPOSED.get(each, each) for each in wanted} | set(PREFIXES)
    for module in MODULES:
        for jar in JARS.glob(f"spark-{module}_2.13-*.jar"):
            with zipfile.ZipFile(jar) as archive:
                for name in archive.namelist():
                    if name.endswith(".class") and missing:
                        content = archive.read(name)
                        missing -= {each for each in missing if each.encode() in content}
    assert missing == set()
