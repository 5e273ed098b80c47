"""WebSphere MQ messages in pure Python: bytes to values and back, and everything MQ does to a message on its way.

layout, layout_table      every structure, one table; the C headers are generated from it too
constants*                IBM's names and the words for reason codes
mqmd mde xqh dlh dh rfh rfh2 rfh2_folder rmh pcf    one module a structure
header, chain, describe   headers one after another: found, edited, in words
properties, property_names, propctl              message properties and who sees what of them
situations, message_context, grouping            what queue managers do to messages
ccsid, conversion, conversion_headers            character sets, MQGMO_CONVERT
reason_policy             what the gateway does about each reason code

No input or output, no clock, no MQ library. Bad bytes raise HeaderError, what MQI calls would refuse MQError.
"""
