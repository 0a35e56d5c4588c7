"""The project that the demo repairs: three files, two faults, tests that find them."""

from collections.abc import Mapping
from pathlib import Path

CART = '''"""A shopping cart. All amounts are in cents."""

from discounts import reduced


def subtotal(lines):
    """Add up lines of (price, quantity)."""
    total = 0
    for price, quantity in lines:
        total += price
    return total


def total(lines, percent=0):
    """What is to be paid, after a discount."""
    return reduced(subtotal(lines), percent)


def receipt(lines, percent=0):
    """One line for the customer."""
    return f"Total: {total(lines, percent) / 100:.1f}"
'''

DISCOUNTS = '''"""Discounts in percent, on amounts in cents."""


def reduced(cents, percent):
    """Take a discount off; what is left is rounded down to whole cents."""
    return cents - cents * percent / 100
'''

TESTS = """import unittest

from cart import receipt, subtotal, total

LINES = [(250, 2), (199, 1)]


class CartTest(unittest.TestCase):
    def test_quantities_count(self):
        self.assertEqual(subtotal(LINES), 699)

    def test_a_discount_leaves_whole_cents(self):
        left = total(LINES, percent=10)
        self.assertEqual(left, 629)
        self.assertIsInstance(left, int)

    def test_a_receipt_shows_two_decimals(self):
        self.assertEqual(receipt(LINES), "Total: 6.99")
"""

PROJECT: Mapping[str, str] = {"cart.py": CART, "discounts.py": DISCOUNTS, "test_cart.py": TESTS}
"""The files, by name."""

COUNT_QUANTITIES = ("        total += price\n", "        total += price * quantity\n")
SHOW_CENTS = (":.1f}", ":.2f}")
KEEP_WHOLE_CENTS = ("cents - cents * percent / 100", "cents * (100 - percent) // 100")
"""The edits that repair it: (old, new)."""

REPAIRED: Mapping[str, str] = {
    "cart.py": CART.replace(*COUNT_QUANTITIES).replace(*SHOW_CENTS),
    "discounts.py": DISCOUNTS.replace(*KEEP_WHOLE_CENTS),
    "test_cart.py": TESTS,
}
"""What must be there in the end."""


def write_project(folder: Path) -> None:
    """Lay the project in an empty folder.

    Raises:
        FileExistsError: something is there already.
    """
    folder.mkdir(parents=True)
    for name, text in PROJECT.items():
        (folder / name).write_text(text, encoding="utf-8")
