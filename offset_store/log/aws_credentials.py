"""Credentials of AWS beyond those that obstore finds itself: profiles in files, and roles to assume.

delta-rs asks AWS's SDK for credentials if the store has no endpoint of its own, or if ``AWS_FORCE_CREDENTIAL_LOAD`` is
set, in this order: options, environment, the profile that ``AWS_PROFILE`` names in ``~/.aws``, the machine's role.
obstore knows all of these except profiles. Keys in a profile are read here; a profile that names a role, a process or a
single sign-on, and ``AWS_IAM_ROLE_ARN``, need boto3.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ENDPOINT = ("aws_endpoint", "aws_endpoint_url", "endpoint", "endpoint_url")
_KEY = ("aws_access_key_id", "access_key_id")
_FORCED = ("aws_force_credential_load", "aws_s3_locking_provider")
_ROLE = ("aws_iam_role_arn", "aws_s3_assume_role_arn")
_ROLE_SESSION = ("aws_iam_role_session_name", "aws_s3_role_session_name")
_IN_PROFILE = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_BY_BOTO3 = ("role_arn", "credential_process", "sso_session", "sso_start_url", "web_identity_token_file")
PROFILE = "profile"
"""In place of a role: that boto3 is to read the profile, whose name is in place of the session's."""


def found_by_sdk(
    config: Mapping[str, str], options: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, str] | None]:
    """Return keys of a profile, if it has any, and what boto3 has to find: a role and its session, or the `PROFILE`.

    Args:
        config: the store's options and what the environment says instead, by obstore's names.
        options: all options, by names in lower case.
    """
    has_endpoint = any(name in config for name in _ENDPOINT)
    if has_endpoint and not any(_value(name, options) for name in _FORCED):
        return {}, None
    role = next(filter(None, (_value(name, options) for name in _ROLE)), "")
    if role:
        session = next(filter(None, (_value(name, options) for name in _ROLE_SESSION)), "sparkonce")
        return {}, (role, session)
    if any(name in config for name in _KEY):
        return {}, None
    profile = _profile()
    if "aws_access_key_id" in profile and "aws_secret_access_key" in profile:
        return {name: profile[name] for name in _IN_PROFILE if name in profile}, None
    return {}, (PROFILE, _profile_name()) if any(name in profile for name in _BY_BOTO3) else None


def boto3_provider(role: str, session: str) -> Any:
    """Return what finds credentials with boto3, and renews them.

    Raises:
        OSError: if boto3 is missing.
    """
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider, StsCredentialProvider
    except ImportError as error:
        what = f"the profile {_profile_name()!r}" if role == PROFILE else f"AWS_IAM_ROLE_ARN={role}"
        raise OSError(f"the credentials of {what} are found by boto3, which is missing: pip install boto3") from error
    if role == PROFILE:
        return Boto3CredentialProvider()
    return StsCredentialProvider(RoleArn=role, RoleSessionName=session)


def _profile() -> Mapping[str, str]:
    """Return the entries of the profile, those of the file for credentials first."""
    name, found = _profile_name(), dict[str, str]()
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        parser = configparser.RawConfigParser(strict=False)
        path = Path(os.environ.get(variable) or f"~/.aws/{file}").expanduser()
        try:
            parser.read(path)
        except (configparser.Error, OSError, UnicodeDecodeError):  # the SDK passes over it, too
            continue
        if parser.has_section(section):
            found |= parser.items(section)
    return found


def _profile_name() -> str:
    return os.environ.get("AWS_PROFILE") or "default"


def _value(name: str, options: Mapping[str, str]) -> str:
    return options.get(name) or os.environ.get(name.upper(), "")
