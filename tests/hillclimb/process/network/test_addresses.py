"""What runs may reach: public addresses, and what the operator opens, by address or by name."""

from __future__ import annotations

import ipaddress

import pytest

from hillclimb.process.network import addresses
from hillclimb.process.network.addresses import PRIVATE_HOSTS, AllowedHosts


@pytest.mark.parametrize(
    ("address", "is_public"),
    [
        ("93.184.216.34", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::1", False),
        ("168.63.129.16", False),
        ("fd00:ec2::254", False),
        ("192.0.0.192", False),
        ("64:ff9b:1::a00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("::10.0.0.1", False),
        ("fec0::1", False),
    ],
)
def test_public_are_the_addresses_that_everybody_reaches(address: str, is_public: bool) -> None:
    assert addresses.is_public(ipaddress.ip_address(address)) is is_public


@pytest.mark.parametrize(
    ("setting", "host", "address", "is_allowed"),
    [
        ("", "api.example.com", "93.184.216.34", True),
        ("", "localhost", "127.0.0.1", False),
        ("none", "localhost", "127.0.0.1", False),
        ("loopback", "localhost", "127.0.0.1", True),
        ("loopback", "localhost", "::1", True),
        ("loopback", "mapped", "::ffff:127.0.0.1", True),
        ("loopback", "lan", "10.0.0.7", False),
        ("127.0.0.1", "here", "127.0.0.2", False),
        ("10.0.0.0/8, loopback", "lan", "10.0.0.7", True),
        ("10.0.0.9/8", "lan", "10.0.0.7", True),
        ("fd00:1::/32", "lan", "fd00:1::7", True),
        ("teacher.internal", "teacher.internal", "10.0.0.7", True),
        ("teacher.internal", "teacher.internal.", "10.0.0.7", True),
        ("teacher.internal", "other.internal", "10.0.0.7", False),
        ("*.internal", "teacher.internal", "10.0.0.7", True),
        ("*.internal", "metadata.google.internal", "169.254.169.254", False),
        ("*.internal", "metadata.internal", "fd00:ec2::254", False),
        ("169.254.169.254", "metadata.google.internal", "169.254.169.254", True),
    ],
)
def test_a_setting_opens_what_it_lists(
    setting: str, host: str, address: str, is_allowed: bool
) -> None:
    allowed = AllowedHosts.parse(setting)
    assert allowed.allow(host, ipaddress.ip_address(address)) is is_allowed


@pytest.mark.parametrize("entry", ["10.0.0.0/99", "1.2.3", "a_b", "http://x", "::1::", "x/8"])
def test_an_entry_that_opens_nothing_is_refused_by_name(entry: str) -> None:
    with pytest.raises(ValueError, match=rf"{PRIVATE_HOSTS} lists .*{entry}"):
        AllowedHosts.parse(f"loopback {entry}")


def test_a_trainer_that_somebody_starts_by_hand_reaches_the_own_machine() -> None:
    own = ipaddress.ip_address("127.0.0.1")
    assert AllowedHosts.of_trainer({}).allow("localhost", own)
    assert not AllowedHosts.of_trainer({PRIVATE_HOSTS: ""}).allow("localhost", own)


def test_a_server_that_the_operator_names_is_open() -> None:
    address = ipaddress.ip_address("10.0.0.7")
    named = AllowedHosts().with_server("https://fleet.internal:8443/x")
    assert named.allow("fleet.internal", address)
    assert not named.allow("elsewhere.internal", address)
    assert AllowedHosts().with_server("http://10.0.0.7:1").allow("10.0.0.7", address)
    assert AllowedHosts().with_server(None) == AllowedHosts()
