// A consumer of the queue with IBM MQ classes for .NET, against IBM MQ.
// The gateway's own queue manager speaks no MQ channels: develop with ibmmq, pymqi or C against it.
//
//   dotnet add package IBMMQDotnetClient
//   MQ_PASSWORD=... dotnet run mq1 1414 QM1 DEV.APP.SVRCONN app TELEMETRY.LIMA
using System;
using System.Collections;
using IBM.WMQ;

if (args.Length != 6)
{
    Console.Error.WriteLine("use: HOST PORT QUEUE_MANAGER CHANNEL USER QUEUE");
    return 2;
}
var where = new Hashtable
{
    { MQC.TRANSPORT_PROPERTY, MQC.TRANSPORT_MQSERIES_MANAGED },
    { MQC.HOST_NAME_PROPERTY, args[0] },
    { MQC.PORT_PROPERTY, int.Parse(args[1]) },
    { MQC.CHANNEL_PROPERTY, args[3] },
    { MQC.USE_MQCSP_AUTHENTICATION_PROPERTY, true },
    { MQC.USER_ID_PROPERTY, args[4] },
    { MQC.PASSWORD_PROPERTY, Environment.GetEnvironmentVariable("MQ_PASSWORD") },
};
using var manager = new MQQueueManager(args[2], where);
using var queue = manager.AccessQueue(args[5], MQC.MQOO_INPUT_SHARED | MQC.MQOO_FAIL_IF_QUIESCING);
// In syncpoint: a message leaves the queue when its work is done. Properties instead of an MQRFH2 in the body.
var options = new MQGetMessageOptions
{
    Options = MQC.MQGMO_SYNCPOINT | MQC.MQGMO_WAIT | MQC.MQGMO_CONVERT | MQC.MQGMO_PROPERTIES_IN_HANDLE | MQC.MQGMO_FAIL_IF_QUIESCING,
    WaitInterval = MQC.MQWI_UNLIMITED,
};
while (true)
{
    var message = new MQMessage();
    queue.Get(message, options);
    var text = message.ReadString(message.MessageLength);
    Console.WriteLine($"{message.GetStringProperty("site")} line {message.GetIntProperty("line")}: {text}");
    manager.Commit();
}
