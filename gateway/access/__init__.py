"""Identity and authority behind `ports.access`: passwords, tokens, certificates, SCRAM, access lists."""
