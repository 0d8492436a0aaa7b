"""Compatibility: can a reader with one Protobuf schema read bytes that were written with another?"""
