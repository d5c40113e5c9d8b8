"""The only readers of /proc, /sys and toolchains, through an injected root folder and clock."""
