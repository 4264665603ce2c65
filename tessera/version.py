"""The version of this package and compiler."""

VERSION = "0.1.0"
