"""Acts: does what `drumbeat.core` decided, on clocks, disks, processes and the host's loop."""
