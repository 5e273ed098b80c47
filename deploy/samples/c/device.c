/* A device with paho's C client: readings of QoS 1, each acknowledged when it is committed; commands come back.
 *
 *   apt-get install libpaho-mqtt-dev
 *   cc -Wall -o device device.c -lpaho-mqtt3c        (for TLS: -lpaho-mqtt3cs, and MQTTClient_SSLOptions)
 *   ./device tcp://gateway.plant.example:1883 [readings]
 */
#include <MQTTClient.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 60000

static int commanded(void *context, char *topic, int length, MQTTClient_message *message)
{
    (void)context;
    (void)length;
    printf("command on %s: %.*s\n", topic, message->payloadlen, (char *)message->payload);
    fflush(stdout);
    MQTTClient_freeMessage(&message);
    MQTTClient_free(topic);
    return 1; /* taken: it is acknowledged now */
}

static int failed(const char *what, int code)
{
    fprintf(stderr, "%s: %s\n", what, MQTTClient_strerror(code));
    return EXIT_FAILURE;
}

int main(int count, char **words)
{
    const char *address = count > 1 ? words[1] : "tcp://127.0.0.1:1883";
    int readings = count > 2 ? atoi(words[2]) : 3;
    MQTTClient client;
    MQTTClient_connectOptions options = MQTTClient_connectOptions_initializer;
    int code = MQTTClient_create(&client, address, "line-7-c", MQTTCLIENT_PERSISTENCE_NONE, NULL);

    if (code != MQTTCLIENT_SUCCESS)
        return failed("create", code);
    MQTTClient_setCallbacks(client, NULL, NULL, commanded, NULL);
    options.cleansession = 0; /* commands wait on the gateway while the device is away */
    options.username = getenv("MQTT_USER");
    options.password = getenv("MQTT_PASSWORD");
    code = MQTTClient_connect(client, &options);
    if (code != MQTTCLIENT_SUCCESS)
        return failed("connect", code);
    code = MQTTClient_subscribe(client, "plant/lima/cmd", 1);
    if (code != MQTTCLIENT_SUCCESS)
        return failed("subscribe", code);
    for (int number = 0; number < readings; number++) {
        char reading[32];
        MQTTClient_deliveryToken token;
        int length = snprintf(reading, sizeof reading, "%d.5", 20 + number);

        code = MQTTClient_publish(client, "plant/lima/line/7/temperature", length, reading, 1, 0, &token);
        if (code == MQTTCLIENT_SUCCESS)
            code = MQTTClient_waitForCompletion(client, token, WAIT_MS); /* PUBACK: it is on its queue, on disk */
        if (code != MQTTCLIENT_SUCCESS)
            return failed("publish", code);
        printf("committed %s\n", reading);
    }
    MQTTClient_disconnect(client, 1000);
    MQTTClient_destroy(&client);
    return EXIT_SUCCESS;
}
