"""What tests of coordinators stand on: a clock and a log by hand."""
