"""The MQI for programs: a C library with the MQI entry points, its headers, and the server side of its socket."""
