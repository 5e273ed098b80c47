/* A device with ESP-IDF 5 (esp-mqtt): readings of QoS 1, commands back. The outbox holds what is not acknowledged yet, and
 * sends it again after the connection comes back: with QoS 1 a reading may be put twice, never lost.
 *
 *   idf.py set-target esp32 && idf.py menuconfig      (Example Connection Configuration: the network)
 *   idf.py flash monitor
 */
#include "esp_event.h"
#include "esp_log.h"
#include "esp_netif.h"
#include "freertos/FreeRTOS.h"
#include "freertos/task.h"
#include "mqtt_client.h"
#include "nvs_flash.h"
#include "protocol_examples_common.h"
#include <stdio.h>

#define GATEWAY "mqtt://gateway.plant.example:1883" /* mqtts:// and .broker.verification.certificate for TLS */

static const char *TAG = "line-7";

static void on_mqtt(void *context, esp_event_base_t base, int32_t id, void *data)
{
    esp_mqtt_event_handle_t event = data;

    (void)context;
    (void)base;
    switch ((esp_mqtt_event_id_t)id) {
    case MQTT_EVENT_CONNECTED:
        esp_mqtt_client_subscribe(event->client, "plant/lima/cmd", 1);
        break;
    case MQTT_EVENT_PUBLISHED: /* PUBACK: it is on its queue, on disk */
        ESP_LOGI(TAG, "committed %d", event->msg_id);
        break;
    case MQTT_EVENT_DATA:
        ESP_LOGI(TAG, "command: %.*s", event->data_len, event->data);
        break;
    case MQTT_EVENT_ERROR:
        ESP_LOGW(TAG, "refused with %d, or not reached", event->error_handle->connect_return_code);
        break;
    default:
        break;
    }
}

void app_main(void)
{
    const esp_mqtt_client_config_t config = {
        .broker.address.uri = GATEWAY,
        .credentials.client_id = "line-7-esp",
        .session.disable_clean_session = true, /* commands wait on the gateway while the device is away */
    };

    ESP_ERROR_CHECK(nvs_flash_init());
    ESP_ERROR_CHECK(esp_netif_init());
    ESP_ERROR_CHECK(esp_event_loop_create_default());
    ESP_ERROR_CHECK(example_connect());
    esp_mqtt_client_handle_t client = esp_mqtt_client_init(&config);
    ESP_ERROR_CHECK(esp_mqtt_client_register_event(client, ESP_EVENT_ANY_ID, on_mqtt, NULL));
    ESP_ERROR_CHECK(esp_mqtt_client_start(client));
    for (unsigned number = 0;; number++) {
        char reading[16];
        int length = snprintf(reading, sizeof reading, "%u.5", 20 + number % 10);

        esp_mqtt_client_enqueue(client, "plant/lima/line/7/temperature", reading, length, 1, 0, true);
        vTaskDelay(pdMS_TO_TICKS(1000));
    }
}
