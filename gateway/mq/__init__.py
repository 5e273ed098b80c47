"""WebSphere MQ messages in pure Python: bytes to values and back, and everything MQ does to a message on its way.

layout, layout_table      every structure, one table; the C headers are generated from it too
constants/                IBM's names and the words for reason codes
mqmd, pcf                 the descriptor, and the format of commands and events
headers/                  what stands in front of a message's data, one module a structure, and chains of them
character_sets/           what CCSIDs stand for
describe                  all of it in words
properties, property_names, propctl              message properties and who sees what of them
situations, grouping                             what queue managers do to messages
conversion, conversion_headers                   MQGMO_CONVERT
reason_policy             what the gateway does about each reason code

No input or output, no clock, no MQ library. Invalid bytes raise HeaderError; what MQI calls would refuse raises
MQError.
"""
