"""The command `kops scan carve`: lost data in images of disks, found on Spark."""
